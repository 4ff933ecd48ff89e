package combine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is a lane without concurrency: who waits, who runs, and what each caller was told.
type model struct {
	max     int
	queue   []int
	batch   []int // the first is the leader
	gone    map[int]bool
	batches [][]int
	told    map[int]string
}

func (m *model) arrive(id int) {
	if m.batch != nil {
		m.queue = append(m.queue, id)
		return
	}
	m.begin([]int{id})
}

func (m *model) begin(batch []int) {
	m.batch = batch
	m.batches = append(m.batches, batch)
	m.gone = map[int]bool{}
}

func (m *model) cancel(id int) {
	if i := slices.Index(m.queue, id); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		m.told[id] = "not started"
	}
	if i := slices.Index(m.batch, id); i > 0 && !m.gone[id] {
		m.gone[id] = true
		m.told[id] = "started"
	}
}

func (m *model) finish(leader, follower string) {
	for i, id := range m.batch {
		switch {
		case i == 0:
			m.told[id] = leader
		case !m.gone[id]:
			m.told[id] = follower
		}
	}
	m.batch = nil
	if n := min(m.max, len(m.queue)); n > 0 {
		m.begin(slices.Clone(m.queue[:n]))
		m.queue = slices.Delete(m.queue, 0, n)
	}
}

// TestLane_Model plays random histories of arrivals, cancellations and ends of batches, and compares a lane with the
// model after every step.
func TestLane_Model(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A *testing.T in a bubble panics when rapid asks for its deadline, and rapid asks nothing else for one.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			max := rapid.IntRange(1, 5).Draw(t, "max")
			s, m := newStage(max), &model{max: max, told: map[int]string{}}
			defer s.close()
			finish := func(leader, follower string, end func() error) func(*rapid.T) {
				return func(t *rapid.T) {
					if m.batch == nil {
						t.Skip("nothing runs")
					}
					m.finish(leader, follower)
					s.finish(end)
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"arrive": func(*rapid.T) {
					m.arrive(len(s.callers))
					s.calls(1)
				},
				"cancel": func(t *rapid.T) {
					if len(s.callers) == 0 {
						t.Skip("nobody came")
					}
					id := rapid.IntRange(0, len(s.callers)-1).Draw(t, "id")
					m.cancel(id)
					s.cancel(s.callers[id])
				},
				"succeed": finish("ok", "ok", nil),
				"fail":    finish("failed", "failed", fails),
				"panic":   finish("panic", "panicked", panics),
				"exit":    finish("ok", "panicked", exits), // the leader's Do never returns: no error to see
				"":        func(t *rapid.T) { compare(t, m, s) },
			})
		})
	})
}

func compare(t *rapid.T, m *model, s *stage) {
	told := map[int]string{}
	runs := map[int]int32{}
	for _, c := range s.callers {
		if c.returned {
			told[c.id] = c.told()
		}
		if n := c.runs.Load(); n > 0 {
			runs[c.id] = n
		}
	}
	want := map[int]int32{}
	for _, batch := range m.batches {
		for _, id := range batch {
			want[id]++
		}
	}
	for name, diff := range map[string]string{
		"told":    cmp.Diff(m.told, told),
		"batches": cmp.Diff(m.batches, s.batches),
		"runs":    cmp.Diff(want, runs),
		"running": cmp.Diff(m.batch != nil, s.running != nil),
	} {
		if diff != "" {
			t.Fatal(fmt.Sprint(name, " (-model +lane):\n", diff))
		}
	}
}
