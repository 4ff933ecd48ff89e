package spendsql

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Lists that are rarely there are JSON in columns of text, and the empty text when they are empty.

// encode makes the text of a value.
func encode(text *string, v any) error {
	out, err := json.Marshal(v)
	if *text = string(out); *text == "{}" {
		*text = ""
	}
	return err
}

func encodeList[T any](text *string, list []T) error {
	if len(list) == 0 {
		*text = ""
		return nil
	}
	return encode(text, list)
}

// decode reads what encode has made.
func decode(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// appendIDs appends a JSON array of numbers. It is for what every row has, and so is parseIDs.
func appendIDs(text []byte, ids []int64) []byte {
	text = append(text, '[')
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, id, 10)
	}
	return append(text, ']')
}

// parseIDs reads what appendIDs has made.
func parseIDs(text string) ([]int64, error) {
	inner, begins := strings.CutPrefix(text, "[")
	inner, ends := strings.CutSuffix(inner, "]")
	if !begins || !ends {
		return nil, fmt.Errorf("%q where a list of ids should be", text)
	}
	if inner == "" {
		return nil, nil
	}
	ids := make([]int64, 0, 4)
	for part := range strings.SplitSeq(inner, ",") {
		id, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// appendPostings appends a JSON array of arrays of numbers.
func appendPostings(text []byte, list []posting) []byte {
	text = append(text, '[')
	for i := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendIDs(text, list[i][:])
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
