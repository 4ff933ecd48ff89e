package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Bounds of a request.
const (
	maxBody     = 16 << 10
	maxHeader   = 16 << 10
	maxKey      = 200
	readTime    = 10 * time.Second
	handleTime  = 15 * time.Second
	writeTime   = readTime + handleTime + 5*time.Second
	idleTime    = time.Minute
	drainTime   = 20 * time.Second // of requests that have begun when the service is told to stop
	healthyTime = 2 * time.Second
)

// serve answers requests until ctx ends, and then those that have begun. It closes l.
func serve(ctx context.Context, l net.Listener, cfg config, db database, log *slog.Logger) error {
	limit := spendlimit.Limit{Name: "daily", Kind: spendlimit.Day, Zone: cfg.zone, Amount: cfg.limit}
	s := &server{
		log: log,
		runs: &runs{db: db, ttl: cfg.ttl, cfg: spendlimit.Config{
			Unit:     spendlimit.USD,
			Defaults: func(string) []spendlimit.Limit { return []spendlimit.Limit{limit} },
		}},
	}
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	log.Info("listening", "addr", l.Addr().String(), "store", cfg.store.kind)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping")
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := srv.Shutdown(drain)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	if ending := <-ended; !errors.Is(ending, http.ErrServerClosed) {
		err = errors.Join(err, ending)
	}
	return err
}

type server struct {
	runs *runs
	log  *slog.Logger
}

// handler returns the status and the body of an answer, or why there is none. It may set headers.
type handler func(h http.Header, r *http.Request) (status int, body any, err error)

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(pattern, w, r, f) })
	}
	handle("POST /runs", s.postRun)
	handle("POST /runs/{id}/settle", s.postSettle)
	handle("GET /accounts/{name}/balances", s.getBalances)
	handle("GET /healthz", s.getHealth)
	mux.HandleFunc("GET /problems/{name}", func(w http.ResponseWriter, r *http.Request) {
		text, ok := explanations[r.URL.Path]
		if !ok {
			blank(http.StatusNotFound, "").write(w)
			return
		}
		_, _ = io.WriteString(w, text+"\n")
	})
	return mux
}

// answer gives a request its bounds, and its error an answer. The log has no bodies, keys, names or addresses.
func (s *server) answer(pattern string, w http.ResponseWriter, r *http.Request, f handler) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), handleTime)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	status, body, err := f(w.Header(), r.WithContext(ctx))
	level, cause := slog.LevelInfo, ""
	if err != nil {
		p := problemOf(err)
		if status = p.Status; status >= http.StatusInternalServerError {
			level, cause = slog.LevelError, err.Error()
		}
		p.write(w)
	} else {
		write(w, status, "application/json", body)
	}
	s.log.Log(ctx, level, "request", "route", pattern, "status", status, "took", time.Since(began).String(), "cause", cause)
}

func (s *server) postRun(h http.Header, r *http.Request) (int, any, error) {
	body := struct {
		Account  string              `json:"account"`
		Estimate spendlimit.Quantity `json:"estimated_cost"`
	}{Estimate: missing}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	key, err := keyOf(r)
	if err != nil {
		return 0, nil, err
	}
	if body.Estimate.Amount <= 0 {
		return 0, nil, fmt.Errorf("%w: estimated_cost: want an amount above 0", errBadRequest)
	}
	j, err := s.runs.admit(r.Context(), job{key: key, account: body.Account, estimate: body.Estimate.Amount})
	if err != nil {
		return 0, nil, err
	}
	h.Set("Location", "/runs/"+j.id)
	return http.StatusCreated, j, nil
}

func (s *server) postSettle(_ http.Header, r *http.Request) (int, any, error) {
	body := struct {
		Cost spendlimit.Quantity `json:"cost"`
	}{Cost: missing}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Cost.Amount < 0 {
		return 0, nil, fmt.Errorf("%w: cost: want an amount of 0 or more", errBadRequest)
	}
	j, receipt, err := s.runs.settle(r.Context(), r.PathValue("id"), body.Cost.Amount)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Run      job                 `json:"run"`
		Returned spendlimit.Quantity `json:"returned"` // of the estimate
		Overrun  spendlimit.Quantity `json:"overrun"`  // cost for which the budget had no room
	}{j, spendlimit.USD.Quantity(receipt.Returned), spendlimit.USD.Quantity(receipt.Overrun)}, nil
}

func (s *server) getBalances(_ http.Header, r *http.Request) (int, any, error) {
	list, err := s.runs.balances(r.Context(), r.PathValue("name"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Balances []spendlimit.Balance `json:"balances"`
	}{list}, nil
}

func (s *server) getHealth(_ http.Header, r *http.Request) (int, any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), healthyTime)
	defer cancel()
	if err := s.runs.alive(ctx); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]string{"status": "ok"}, nil
}

// missing is an amount that a body has left out: below 0, which no amount may be here.
var missing = spendlimit.USD.Quantity(-1)

// read reads a body that is one JSON object with known fields.
func read(r *http.Request, into any) error {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return errMediaType
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = cmp.Or(err, errors.New("more than one JSON value"))
	}
	return fmt.Errorf("%w: body: %w", errBadRequest, err)
}

// keyOf is the caller's name for a run.
func keyOf(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	hidden := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if len(keys) != 1 || keys[0] == "" || len(keys[0]) > maxKey || strings.ContainsFunc(keys[0], hidden) {
		return "", fmt.Errorf("%w: want one Idempotency-Key header of 1 to %d visible ASCII characters", errBadRequest, maxKey)
	}
	return keys[0], nil
}
