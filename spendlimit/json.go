package spendlimit

import (
	"encoding/json"
	"time"
)

// MarshalJSON writes amounts as decimal strings in the ledger's unit, and times that do not exist as null.
func (b Balance) MarshalJSON() ([]byte, error) {
	fired := []thresholdJSON{}
	for _, t := range b.Fired {
		fired = append(fired, t.json())
	}
	return json.Marshal(struct {
		Account     string          `json:"account"`
		Limit       string          `json:"limit"`
		Kind        Kind            `json:"kind"`
		Period      string          `json:"period"`
		Start       *time.Time      `json:"start"`
		End         *time.Time      `json:"end"`
		Unit        string          `json:"unit"`
		InForce     Quantity        `json:"in_force"`
		Spent       Quantity        `json:"spent"`
		Held        Quantity        `json:"held"`
		Available   Quantity        `json:"available"`
		Overrun     Quantity        `json:"overrun"`
		Cut         Quantity        `json:"cut"`
		Assumed     Quantity        `json:"assumed"`
		Unpriced    int64           `json:"unpriced"`
		Fired       []thresholdJSON `json:"fired"`
		Fingerprint string          `json:"fingerprint"`
	}{
		b.Account, b.Limit, b.Kind, b.Period, timeJSON(b.Start), timeJSON(b.End), b.Unit.Code,
		b.Unit.Quantity(b.InForce), b.Unit.Quantity(b.Spent), b.Unit.Quantity(b.Held), b.Unit.Quantity(b.Available),
		b.Unit.Quantity(b.Overrun), b.Unit.Quantity(b.Cut), b.Unit.Quantity(b.Assumed), b.Unpriced, fired, b.Fingerprint,
	})
}

type thresholdJSON struct {
	Percent int    `json:"percent"`
	Of      string `json:"of"`
}

func (t Threshold) json() thresholdJSON {
	of := "spent and held"
	if t.Of == Spent {
		of = "spent"
	}
	return thresholdJSON{t.Percent, of}
}

func timeJSON(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// MarshalJSON writes amounts as decimal strings in the ledger's unit.
func (e Entry) MarshalJSON() ([]byte, error) {
	type posting struct {
		Limit   string     `json:"limit"`
		Period  string     `json:"period"`
		Start   *time.Time `json:"start"`
		Spent   Quantity   `json:"spent"`
		Held    Quantity   `json:"held"`
		Overrun Quantity   `json:"overrun"`
	}
	postings := []posting{}
	for _, p := range e.Postings {
		postings = append(postings, posting{
			p.Limit, p.Period, timeJSON(p.Start), e.Unit.Quantity(p.Spent), e.Unit.Quantity(p.Held), e.Unit.Quantity(p.Overrun),
		})
	}
	return json.Marshal(struct {
		Account  string            `json:"account"`
		Seq      int64             `json:"seq"`
		At       time.Time         `json:"at"`
		Kind     string            `json:"kind"`
		Ref      string            `json:"ref"`
		Hold     string            `json:"hold,omitempty"`
		Reason   string            `json:"reason,omitempty"`
		Source   string            `json:"source"`
		Labels   map[string]string `json:"labels,omitempty"`
		Unit     string            `json:"unit"`
		Spent    Quantity          `json:"spent"`
		Held     Quantity          `json:"held"`
		Postings []posting         `json:"postings"`
	}{
		e.Account, e.Seq, e.At, e.Kind.String(), e.Ref, e.Hold, e.Reason, e.Source.String(), e.Labels, e.Unit.Code,
		e.Unit.Quantity(e.Spent), e.Unit.Quantity(e.Held), postings,
	})
}

// MarshalJSON writes amounts as decimal strings in the ledger's unit, and times that do not exist as null.
func (h *Hold) MarshalJSON() ([]byte, error) {
	if h == nil {
		return []byte("null"), nil
	}
	if !h.usable() {
		return nil, errNilHold
	}
	u := h.ledger.Unit()
	return json.Marshal(struct {
		Key       string            `json:"key"`
		Parent    string            `json:"parent,omitempty"`
		Accounts  []string          `json:"accounts"`
		State     string            `json:"state"`
		Unit      string            `json:"unit"`
		Granted   Quantity          `json:"granted"`
		Own       Quantity          `json:"own"`
		Recorded  Quantity          `json:"recorded"`
		Assumed   Quantity          `json:"assumed"`
		Group     string            `json:"group,omitempty"`
		Slots     int               `json:"slots,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
		CreatedAt time.Time         `json:"created_at"`
		ExpiresAt time.Time         `json:"expires_at"`
		EndedAt   *time.Time        `json:"ended_at"`
	}{
		h.Key, h.Parent, append([]string{}, h.Accounts...), h.State.String(), u.Code,
		u.Quantity(h.Granted), u.Quantity(h.Own), u.Quantity(h.Recorded), u.Quantity(h.Assumed),
		h.Group, h.Slots, h.Labels, h.CreatedAt, h.ExpiresAt, timeJSON(h.EndedAt),
	})
}
