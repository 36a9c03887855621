// The accounts and the usages routes on net/http and pgx, to be measured against: the statements of
// examples/accounts.toml, and one INSERT for each usage.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The tables as Forebay makes them; those that are there are taken as they are.
const tables = `
CREATE TABLE IF NOT EXISTS account (id uuid PRIMARY KEY, name text NOT NULL, email text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT now(), version bigint NOT NULL);
CREATE INDEX IF NOT EXISTS account_name ON account (name);
CREATE TABLE IF NOT EXISTS usages (id bigserial PRIMARY KEY, patient_id bigint NOT NULL,
  "timestamp" timestamptz NOT NULL, medication text NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`

func fromEnvironment(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// answer sends JSON; a value that cannot be encoded is a mistake of this program.
func answer(w http.ResponseWriter, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	// A client that is gone gets nothing.
	_, _ = w.Write(body)
}

// problem is an error as RFC 9457 says it.
func problem(w http.ResponseWriter, status int, detail string) {
	answer(w, status, "application/problem+json", map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

// handler answers with a value, or with a status and a detail when the value is nil.
type handler func(r *http.Request) (value any, status int, detail string, err error)

func route(mux *http.ServeMux, pattern string, handle handler) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		value, status, detail, err := handle(r)
		switch {
		case err != nil:
			log.Print(err)
			problem(w, http.StatusInternalServerError, "something unexpected happened")
		case value == nil:
			problem(w, status, detail)
		default:
			answer(w, status, "application/json", value)
		}
	})
}

func run() error {
	background := context.Background()
	settings, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	size, err := strconv.Atoi(fromEnvironment("DATABASE_POOL", "20"))
	if err != nil || size < 1 {
		return fmt.Errorf("DATABASE_POOL must be a whole number of at least 1")
	}
	settings.MaxConns = int32(size)
	pool, err := pgxpool.NewWithConfig(background, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(background, tables); err != nil {
		return err
	}
	mux := http.NewServeMux()
	accounts(mux, pool)
	usages(mux, pool)
	address := fromEnvironment("HOST", "127.0.0.1") + ":" + fromEnvironment("PORT", "3000")
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("go listening on http://%s\n", address)
	return server.ListenAndServe()
}

func main() {
	log.Fatal(run())
}
