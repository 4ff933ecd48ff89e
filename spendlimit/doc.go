// Package spendlimit answers one question: may this work spend this much now?
//
// A [Ledger] admits work against day, week, month and all-time limits on accounts. Work takes a hold before it spends,
// and settles it with the true cost afterwards:
//
//	led, err := spendlimit.New(memory.New(nil).Spend(), spendlimit.Config{Unit: spendlimit.USD})
//	h, err := led.Reserve(ctx, spendlimit.Request{Key: "run-42/7", Accounts: []string{"acme"}, Amount: usd("0.25")})
//	if errors.Is(err, spendlimit.ErrDenied) { … } // a *DeniedError says which limit, and when to ask again
//	defer h.Close(ctx)                            // open: released; dispatched: charged at the hold
//	err = h.Dispatch(ctx)                         // stored before the paid call leaves; on an error don't send
//	rc, err := h.Settle(ctx, spendlimit.Total(usd("0.19")))
//
// # The promise
//
// No grant ever makes spent + held exceed a limit, under any interleaving, crash or retry. What can exceed it is the
// truth: a cost above its hold is booked in full and shown as overrun, and a limit that is cut below what is in use
// shows the cut. For every limit and period, spent + held ≤ limit + overrun + cut.
//
// Further: a hold counts against the periods in which it was granted, whatever the clock says when it ends. Members of a
// [Split] get even shares, in any order. Children spend inside their root's hold. A call that may have left counts as
// spent until its true cost is known: time alone never proves that money was not spent. Unknown cost is never zero.
//
// # Ids, retries, errors
//
// Every call that changes something carries the caller's key or id. The same id with the same content returns the first
// answer; with other content it is [ErrKeyReused]. So after [ErrUncertain] a caller calls again. [ErrUnavailable] and a
// context's own error mean that nothing was written.
//
// # How it is built
//
// core*.go are pure: rows, a command and a time go in, changed rows and an answer come out. ledger.go validates, combines
// concurrent calls into one store step and retries. A [Store] keeps rows and makes steps atomic; it holds no rules.
package spendlimit
