package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type account struct {
	ID        uuid.UUID `json:"id"`
	Name      string    `json:"name"`
	Email     string    `json:"email"`
	CreatedAt time.Time `json:"createdAt"`
	Version   int64     `json:"version"`
}

const (
	byID   = "SELECT id, name, email, created_at, version FROM account WHERE id = $1"
	count  = "SELECT count(*) FROM account WHERE name = $1"
	insert = "INSERT INTO account (id, name, email, version) VALUES ($1, $2, $3, $4)"
	// The first at or above a random id, but never the two that always exist.
	remove = `
DELETE FROM account WHERE id = coalesce(
  (SELECT id FROM account WHERE id >= $1
     AND id NOT IN ('06f40771-6460-479a-a47c-177473e240b5', '4db7506f-43fe-475e-afbe-842514a6223b') ORDER BY id LIMIT 1),
  (SELECT id FROM account
     WHERE id NOT IN ('06f40771-6460-479a-a47c-177473e240b5', '4db7506f-43fe-475e-afbe-842514a6223b') ORDER BY id LIMIT 1))`
)

var inMemory = account{
	ID:        uuid.MustParse("06f40771-6460-479a-a47c-177473e240b5"),
	Name:      "name-1",
	Email:     "email-06f40771-6460-479a-a47c-177473e240b5@email.com",
	CreatedAt: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
	Version:   1,
}

func accounts(mux *http.ServeMux, pool *pgxpool.Pool) {
	route(mux, "GET /accounts/in-memory", func(*http.Request) (any, int, string, error) {
		return inMemory, http.StatusOK, "", nil
	})
	route(mux, "GET /accounts/count", func(r *http.Request) (any, int, string, error) {
		query := r.URL.Query()
		if !query.Has("name") {
			return nil, http.StatusBadRequest, "name is missing", nil
		}
		name, found := query.Get("name"), int64(0)
		if err := pool.QueryRow(r.Context(), count, name).Scan(&found); err != nil {
			return nil, 0, "", err
		}
		return map[string]any{"name": name, "count": found}, http.StatusOK, "", nil
	})
	route(mux, "GET /accounts/{id}", func(r *http.Request) (any, int, string, error) {
		id, err := uuid.Parse(r.PathValue("id"))
		if err != nil {
			return nil, http.StatusBadRequest, "id must be a UUID", nil
		}
		var found account
		err = pool.QueryRow(r.Context(), byID, id).
			Scan(&found.ID, &found.Name, &found.Email, &found.CreatedAt, &found.Version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, http.StatusNotFound, "there is no such account", nil
		}
		return found, http.StatusOK, "", err
	})
	route(mux, "POST /accounts/execute-random-write", func(r *http.Request) (any, int, string, error) {
		id := uuid.New()
		var err error
		if rand.IntN(2) == 0 {
			name, email := fmt.Sprintf("name-%d", rand.IntN(1000)), fmt.Sprintf("email-%s@email.com", id)
			_, err = pool.Exec(r.Context(), insert, id, name, email, rand.IntN(10_000))
		} else {
			_, err = pool.Exec(r.Context(), remove, id)
		}
		return map[string]any{}, http.StatusOK, "", err
	})
}
