package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// job is a run of paid work, as it is stored.
type job struct {
	id, key   string // key is the caller's: a POST with the same one is the same run
	account   string
	state     string
	estimate  spendlimit.Amount
	cost      *spendlimit.Amount // nil until it is known
	createdAt time.Time
}

const (
	running = "running"
	settled = "settled"
)

func (j job) MarshalJSON() ([]byte, error) {
	var cost *spendlimit.Quantity
	if j.cost != nil {
		q := spendlimit.USD.Quantity(*j.cost)
		cost = &q
	}
	return json.Marshal(struct {
		ID        string               `json:"id"`
		Account   string               `json:"account"`
		State     string               `json:"state"`
		Estimate  spendlimit.Quantity  `json:"estimated_cost"`
		Cost      *spendlimit.Quantity `json:"cost"` // null until it is known
		CreatedAt time.Time            `json:"created_at"`
	}{j.id, j.account, j.state, spendlimit.USD.Quantity(j.estimate), cost, j.createdAt})
}

var (
	errNoRun     = errors.New("there is no such run")
	errOtherRun  = errors.New("the Idempotency-Key was used for another run")
	errKeySpent  = errors.New("the money for this Idempotency-Key has been given back; send a new key")
	errOtherCost = errors.New("the run is settled with another cost")
)

// runs admits runs and settles them.
type runs struct {
	db  database
	cfg spendlimit.Config
	ttl time.Duration
}

// ledger is a ledger on a store, for one transaction. Making one costs nothing and does no I/O; but only calls on the same
// ledger are combined, so a run pays for its commits alone: the price of a commit that has the service's row in it.
func (s *runs) ledger(store spendlimit.Store) (*spendlimit.Ledger, error) {
	return spendlimit.New(store, s.cfg)
}

// holdOf is the key of a run's hold: it follows from the caller's key, so that a call that is repeated finds the hold.
func holdOf(key string) string { return "run/" + key }

// admit reserves the estimate and stores the run, both or neither, or returns the run that this key has made before. A
// refusal is a DeniedError, and is not remembered.
func (s *runs) admit(ctx context.Context, j job) (job, error) {
	if have, err := s.find(ctx, "idempotency_key", j.key); !errors.Is(err, errNoRun) {
		return same(have, j, err)
	}
	err := s.db.commit(ctx, func(store spendlimit.Store) (statement, error) {
		led, err := s.ledger(store)
		if err != nil {
			return statement{}, err
		}
		hold, err := led.Reserve(ctx, spendlimit.Request{
			Key: holdOf(j.key), Accounts: []string{j.account}, Amount: j.estimate, TTL: s.ttl,
		})
		if err != nil {
			return statement{}, err
		}
		// The answer lets the work begin, so from here on the money may have been spent, whatever becomes of the caller.
		if err := led.Dispatch(ctx, hold.Key); err != nil {
			return statement{}, err
		}
		return statement{
			`INSERT INTO runs (id, idempotency_key, account, state, estimated_cost, created_us)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (idempotency_key) DO NOTHING`,
			[]any{rand.Text(), j.key, j.account, running, int64(j.estimate), hold.CreatedAt.UnixMicro()},
		}, nil
	})
	var ended *spendlimit.EndedError
	switch {
	case errors.As(err, &ended):
		return job{}, errKeySpent
	case errors.Is(err, spendlimit.ErrKeyReused):
		return job{}, errOtherRun
	case err != nil:
		return job{}, err
	}
	have, err := s.find(ctx, "idempotency_key", j.key)
	if err != nil {
		return job{}, errors.Join(spendlimit.ErrUncertain, err) // it is there, but this caller has not seen it
	}
	return same(have, j, nil)
}

// same makes sure that a stored run is the one that was asked for.
func same(have, want job, err error) (job, error) {
	switch {
	case err != nil:
		return job{}, err
	case have.account != want.account || have.estimate != want.estimate:
		return job{}, errOtherRun
	}
	return have, nil
}

// settle books the true cost of a run, whatever it is, and says so in its row. It may come late, and again.
func (s *runs) settle(ctx context.Context, id string, cost spendlimit.Amount) (job, spendlimit.Receipt, error) {
	j, err := s.find(ctx, "id", id)
	if err != nil {
		return job{}, spendlimit.Receipt{}, err
	}
	var receipt spendlimit.Receipt
	err = s.db.commit(ctx, func(store spendlimit.Store) (statement, error) {
		led, err := s.ledger(store)
		if err == nil {
			receipt, err = led.Settle(ctx, holdOf(j.key), spendlimit.Total(cost))
		}
		return statement{"UPDATE runs SET state = $1, cost = $2 WHERE id = $3", []any{settled, int64(cost), id}}, err
	})
	if errors.Is(err, spendlimit.ErrSettled) {
		err = errOtherCost
	}
	if err != nil {
		return job{}, spendlimit.Receipt{}, err
	}
	j.state, j.cost = settled, &cost
	return j, receipt, nil
}

// find reads a run by a column; errNoRun if there is none.
func (s *runs) find(ctx context.Context, column, value string) (job, error) {
	var j job
	var created int64
	err := s.db.find(ctx, "SELECT id, idempotency_key, account, state, estimated_cost, cost, created_us FROM runs WHERE "+column+" = $1", value,
		&j.id, &j.key, &j.account, &j.state, &j.estimate, &j.cost, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return job{}, errNoRun
	}
	j.createdAt = time.UnixMicro(created).UTC()
	return j, err
}

// balances lists the limits of an account as of now.
func (s *runs) balances(ctx context.Context, account string) ([]spendlimit.Balance, error) {
	led, err := s.ledger(s.db.Spend())
	if err != nil {
		return nil, err
	}
	list := []spendlimit.Balance{}
	for b, err := range led.Balances(ctx, account, time.Time{}) {
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// alive tells whether the database answers.
func (s *runs) alive(ctx context.Context) error {
	var one int
	return s.db.find(ctx, "SELECT 1 WHERE $1 = 'x'", "x", &one)
}
