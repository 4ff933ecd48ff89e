package main

import (
	"slices"
	"time"
)

// synthetic makes the built-in trace: five days of an invented coding service, the same ones every time. Its calls follow
// the hours of work, and about half of them come in bursts: one agent working, with a prompt that grows from call to call.
func synthetic() []call {
	monday := time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC)
	loads := []int{75, 125, 160, 90, 40} // of the days, in percent
	// Sessions in each hour of a day at 100 percent.
	hours := []int{1, 1, 0, 0, 0, 1, 2, 6, 15, 22, 26, 22, 13, 18, 25, 26, 22, 16, 9, 5, 4, 3, 2, 1}
	dice := &dice{state: 20260302}
	var calls []call
	for day, load := range loads {
		for minute := range 24 * 60 {
			if dice.roll(60*100) >= load*hours[minute/60] {
				continue
			}
			at := monday.AddDate(0, 0, day).Add(time.Duration(minute)*time.Minute + dice.millis(60_000))
			calls = append(calls, dice.session(at)...)
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return a.at.Compare(b.at) })
	for i := range calls {
		calls[i].line = i + 2 // as if below a header
	}
	return calls
}

// dice is a small random number generator (splitmix64): the trace must not change with a library.
type dice struct{ state uint64 }

// roll returns a number from 0 to n − 1.
func (d *dice) roll(n int) int {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (d *dice) millis(n int) time.Duration { return time.Duration(d.roll(n)) * time.Millisecond }

// session is one call, or now and then a burst of them.
func (d *dice) session(at time.Time) []call {
	n := 1
	if d.roll(12) == 0 {
		n = 6 + d.roll(15)
	}
	calls := make([]call, 0, n)
	prompt := 300 + d.roll(60)*d.roll(60) // most are short
	for range n {
		output := 20 + d.roll(30)*d.roll(40)
		calls = append(calls, call{at: at, prompt: int64(prompt), output: int64(output)})
		prompt += output + d.roll(400)
		at = at.Add(2*time.Second + d.millis(20_000))
	}
	return calls
}
