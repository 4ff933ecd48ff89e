package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	*room

	retryAfter time.Duration // 0: asking again is of no use, or at once
}

// room says which limit stands in the way of a run, and how much of it is used.
type room struct {
	Account   string              `json:"account"`
	LimitName string              `json:"limit_name"`
	Period    string              `json:"period"`
	Limit     spendlimit.Quantity `json:"limit"`
	Spent     spendlimit.Quantity `json:"spent"`
	Held      spendlimit.Quantity `json:"held"`
	Available spendlimit.Quantity `json:"available"`
	Unit      string              `json:"unit"`
	ResetAt   *time.Time          `json:"reset_at"` // null: never
}

// The types of problems that mean more than their status. Each is a path of this service, which explains it.
const (
	typeNoRoom  = "/problems/no-room"
	typeKeyUsed = "/problems/key-used"
	typeEnded   = "/problems/ended"
	typeUnknown = "/problems/unknown-outcome"
)

var explanations = map[string]string{
	typeNoRoom:  "The budget has no room for the run. Nothing was stored: the same request may be sent again, after Retry-After if there is one. Without one, waiting does not help.",
	typeKeyUsed: "The Idempotency-Key was used before, with another account or estimated cost. Send a new one.",
	typeEnded:   "The run, or the money that was set aside for it, has ended otherwise than this request says.",
	typeUnknown: "The request may have been carried out, or not. Send it again with the same Idempotency-Key: the answer is the true one.",
}

// Errors of requests.
var (
	errBadRequest = errors.New("bad request")
	errMediaType  = errors.New("the body must be application/json")
)

func blank(status int, detail string) problem {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

const soon = time.Second

// problemOf says what an error means to a client. It tells nothing of errors that it does not know.
func problemOf(err error) problem {
	var denied *spendlimit.DeniedError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &denied):
		return noRoom(denied)
	case errors.Is(err, errNoRun):
		return blank(http.StatusNotFound, err.Error())
	case errors.Is(err, errOtherRun):
		return problem{Type: typeKeyUsed, Title: "Key used for another run", Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.Is(err, errKeySpent), errors.Is(err, errOtherCost), errors.Is(err, spendlimit.ErrLapsed), errors.Is(err, spendlimit.ErrReleased):
		return problem{Type: typeEnded, Title: "Already ended", Status: http.StatusConflict, Detail: err.Error()}
	case errors.As(err, &tooLarge):
		return blank(http.StatusRequestEntityTooLarge, "the body is too large")
	case errors.Is(err, errMediaType):
		return blank(http.StatusUnsupportedMediaType, err.Error())
	case errors.Is(err, errBadRequest), errors.Is(err, spendlimit.ErrInvalid):
		return blank(http.StatusBadRequest, err.Error())
	case errors.Is(err, spendlimit.ErrUncertain):
		p := problem{Type: typeUnknown, Title: "Unknown outcome", Status: http.StatusServiceUnavailable, retryAfter: soon}
		p.Detail = "send the same request again"
		return p
	case errors.Is(err, spendlimit.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p := blank(http.StatusServiceUnavailable, "the database does not answer; send the same request again")
		p.retryAfter = soon
		return p
	}
	return blank(http.StatusInternalServerError, "")
}

func noRoom(d *spendlimit.DeniedError) problem {
	p := problem{
		Type: typeNoRoom, Title: "No room in the budget", Status: http.StatusTooManyRequests, Detail: d.Error(), retryAfter: d.RetryAfter,
	}
	if d.Binding.Limit != "" {
		b := d.Binding
		q := b.Unit.Quantity
		p.room = &room{
			Account: b.Account, LimitName: b.Limit, Period: b.Period, Limit: q(b.InForce), Spent: q(b.Spent), Held: q(b.Held),
			Available: q(b.Available), Unit: b.Unit.Code,
		}
		if !d.ResetAt.IsZero() {
			p.ResetAt = &d.ResetAt
		}
	}
	return p
}

func (p problem) write(w http.ResponseWriter) {
	if p.retryAfter > 0 {
		seconds := (p.retryAfter + time.Second - 1) / time.Second // a moment too late rather than too early
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	write(w, p.Status, "application/problem+json", p)
}

func write(w http.ResponseWriter, status int, mediaType string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // to a client that may be gone
}
