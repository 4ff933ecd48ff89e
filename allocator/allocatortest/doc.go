// Package allocatortest has what an [allocator.Store] must pass and what it can be compared with: a conformance suite
// ([Run]), a reference store ([NewStrict]), a store that fails on command ([NewFaulty]) with a check that every call heals
// ([CheckFaults]), a model of a pool ([Model]) with random commands to compare it by ([CheckModel]), and a check of concurrent
// histories ([CheckLinearizable]).
//
//	func TestConformance(t *testing.T) {
//		allocatortest.Run(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
//			db := open(t, clock) // an empty database of its own
//			return allocatortest.Handle{Store: db.Pools(), Close: db.Close}
//		})
//	}
package allocatortest
