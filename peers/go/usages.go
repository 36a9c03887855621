package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	insertUsage = `INSERT INTO usages (patient_id, "timestamp", medication) VALUES ($1, $2, $3) RETURNING id`
	usageByID   = `SELECT id, patient_id, "timestamp", medication, created_at FROM usages WHERE id = $1`
	// As browsers print a time, before the zone's name in parentheses.
	browserTime = "Mon Jan 02 2006 15:04:05 GMT-0700"
	bodyMax     = 1 << 20
)

type usage struct {
	ID         int64     `json:"id"`
	PatientID  int64     `json:"patientId"`
	Timestamp  time.Time `json:"timestamp"`
	Medication string    `json:"medication"`
	CreatedAt  time.Time `json:"createdAt"`
}

func timeOf(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	text, _, _ = strings.Cut(text, " (")
	return time.Parse(browserTime, text)
}

func usages(mux *http.ServeMux, pool *pgxpool.Pool) {
	route(mux, "POST /api/usages", func(r *http.Request) (any, int, string, error) {
		var body struct {
			// A number or a numeric string.
			PatientID  json.RawMessage `json:"patientId"`
			Timestamp  string          `json:"timestamp"`
			Medication *string         `json:"medication"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, bodyMax)).Decode(&body); err != nil {
			return nil, http.StatusBadRequest, "the body is not the JSON of a usage", nil
		}
		patient, err := strconv.ParseInt(strings.Trim(string(body.PatientID), `"`), 10, 64)
		if err != nil {
			return nil, http.StatusBadRequest, "patientId must be a whole number", nil
		}
		at, err := timeOf(body.Timestamp)
		if err != nil {
			return nil, http.StatusBadRequest, "timestamp must be a time", nil
		}
		if body.Medication == nil {
			return nil, http.StatusBadRequest, "medication is missing", nil
		}
		var id int64
		err = pool.QueryRow(r.Context(), insertUsage, patient, at, *body.Medication).Scan(&id)
		return map[string]any{"id": id}, http.StatusCreated, "", err
	})
	route(mux, "GET /api/usages/{id}", func(r *http.Request) (any, int, string, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, http.StatusBadRequest, "id must be a whole number", nil
		}
		var found usage
		err = pool.QueryRow(r.Context(), usageByID, id).
			Scan(&found.ID, &found.PatientID, &found.Timestamp, &found.Medication, &found.CreatedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, http.StatusNotFound, "there is no such usage", nil
		}
		return found, http.StatusOK, "", err
	})
}
