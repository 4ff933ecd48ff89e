package postgres

import (
	"context"
	"log"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/internal/testdb"
)

// exampleTB stands in for the test that an example and TestMain do not have.
type exampleTB struct {
	testing.TB // nil: what is not here is not called
	cleanup    []func()
}

func (t *exampleTB) Helper()          {}
func (t *exampleTB) Cleanup(f func()) { t.cleanup = append(t.cleanup, f) }
func (t *exampleTB) Skip(...any)      { panic(t) }
func (t *exampleTB) Fatal(v ...any)   { log.Panic(v...) }
func (t *exampleTB) Error(v ...any)   { log.Panic(v...) }

func (t *exampleTB) end() {
	for _, f := range t.cleanup {
		f()
	}
}

// database is "" where there is no Postgres.
func (t *exampleTB) database() (dsn string) {
	defer func() {
		if p := recover(); p != nil && p != any(t) {
			panic(p)
		}
	}()
	return testdb.Postgres(t)
}

// PoolForExample is a pool on a database for one example, and what drops both.
func PoolForExample() (*pgxpool.Pool, func()) {
	t := new(exampleTB)
	pool, err := pgxpool.New(context.Background(), t.database())
	if err != nil {
		log.Panic(err)
	}
	return pool, func() {
		pool.Close()
		t.end()
	}
}
