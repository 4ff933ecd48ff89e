package spendsql

import (
	"time"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// appendPostings appends a JSON array of arrays of numbers.
func appendPostings(text []byte, list []posting) []byte {
	text = append(text, '[')
	for i := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = sqlrow.AppendIDs(text, list[i][:])
	}
	return append(text, ']')
}

// receipt is a spendlimit.Receipt with numbers that JSON may have: an Amount there needs its unit.
type receipt struct {
	Cost         int64      `json:"cost,omitempty"`
	Granted      int64      `json:"granted,omitempty"`
	Returned     int64      `json:"returned,omitempty"`
	Excess       int64      `json:"excess,omitempty"`
	Overrun      int64      `json:"overrun,omitempty"`
	Assumed      int64      `json:"assumed,omitempty"`
	Own          int64      `json:"own,omitempty"`
	LiveChildren int        `json:"live_children,omitempty"`
	Late         bool       `json:"late,omitempty"`
	Unpriced     bool       `json:"unpriced,omitempty"`
	Replayed     bool       `json:"replayed,omitempty"`
	Anomaly      uint8      `json:"anomaly,omitempty"`
	Source       uint8      `json:"source,omitempty"`
	Crossed      []crossing `json:"crossed,omitempty"`
	Revision     int64      `json:"revision,omitempty"`
}

type crossing struct {
	Account string `json:"account"`
	Limit   string `json:"limit"`
	Period  string `json:"period"`
	StartUS *int64 `json:"start_us,omitempty"`
	Percent int    `json:"percent"`
	Of      uint8  `json:"of,omitempty"`
}

func receiptOf(r *spendlimit.Receipt) receipt {
	out := receipt{
		Cost: int64(r.Cost), Granted: int64(r.Granted), Returned: int64(r.Returned), Excess: int64(r.Excess), Overrun: int64(r.Overrun),
		Assumed: int64(r.Assumed), Own: int64(r.Own), LiveChildren: r.LiveChildren, Late: r.Late, Unpriced: r.Unpriced,
		Replayed: r.Replayed, Anomaly: uint8(r.Anomaly), Source: uint8(r.Source), Revision: r.Revision,
	}
	for _, c := range r.Crossed {
		x := crossing{Account: c.Account, Limit: c.Limit, Period: c.Period, Percent: c.Threshold.Percent, Of: uint8(c.Threshold.Of)}
		if !c.Start.IsZero() {
			us := c.Start.UnixMicro()
			x.StartUS = &us
		}
		out.Crossed = append(out.Crossed, x)
	}
	return out
}

func (r *receipt) row() spendlimit.Receipt {
	out := spendlimit.Receipt{
		Cost: spendlimit.Amount(r.Cost), Granted: spendlimit.Amount(r.Granted), Returned: spendlimit.Amount(r.Returned),
		Excess: spendlimit.Amount(r.Excess), Overrun: spendlimit.Amount(r.Overrun), Assumed: spendlimit.Amount(r.Assumed),
		Own: spendlimit.Amount(r.Own), LiveChildren: r.LiveChildren, Late: r.Late, Unpriced: r.Unpriced, Replayed: r.Replayed,
		Anomaly: spendlimit.Anomaly(r.Anomaly), Source: spendlimit.Source(r.Source), Revision: r.Revision,
	}
	for _, c := range r.Crossed {
		x := spendlimit.Crossing{
			Account: c.Account, Limit: c.Limit, Period: c.Period,
			Threshold: spendlimit.Threshold{Percent: c.Percent, Of: spendlimit.ThresholdBase(c.Of)},
		}
		if c.StartUS != nil {
			x.Start = time.UnixMicro(*c.StartUS).UTC()
		}
		out.Crossed = append(out.Crossed, x)
	}
	return out
}
