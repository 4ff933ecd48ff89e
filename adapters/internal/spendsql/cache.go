package spendsql

import "slices"

// Cache keeps records from one step to the next, for a database that has one writer at a time and can tell whether another one
// has written: then its user calls [Cache.Drop]. It keeps accounts with limits and live holds, as they are stored. The zero
// Cache is empty. Not safe for concurrent use.
type Cache struct {
	accounts map[int64]*accountState
	byName   map[nameOf]*accountState
	holds    map[int64]*holdRec
	byKey    map[nameOf]*holdRec
}

// nameOf is the name of an account or the key of a hold in a ledger.
type nameOf struct {
	ledger int64
	name   string
}

// accountState is an account with its limits in force, by name, and what readState finds beside them.
type accountState struct {
	account *accountRec
	limits  []*limitRec
	newest  []*periodRec // of each limit, nil if there is none
	first   int64        // no hold on the account ends before; in a fresh state, the one that ends first ends then
}

// Bounds of a cache, which begins anew when it is full.
const (
	maxAccounts = 4096
	maxHolds    = 8192
)

// Drop forgets everything.
func (c *Cache) Drop() {
	clear(c.accounts)
	clear(c.byName)
	clear(c.holds)
	clear(c.byKey)
}

func (c *Cache) keepAccount(a *accountState) {
	if c.accounts == nil {
		c.accounts, c.byName = map[int64]*accountState{}, map[nameOf]*accountState{}
	}
	c.accounts[a.account.id], c.byName[nameOf{a.account.ledger, a.account.row.Name}] = a, a
}

func (c *Cache) dropAccount(r *accountRec) {
	delete(c.accounts, r.id)
	delete(c.byName, nameOf{r.ledger, r.row.Name})
}

// keepHold keeps a hold while it lives.
func (c *Cache) keepHold(h *holdRec) {
	if !h.row.State.Live() {
		delete(c.holds, h.id)
		delete(c.byKey, nameOf{h.ledger, h.row.Key})
		return
	}
	if c.holds == nil {
		c.holds, c.byKey = map[int64]*holdRec{}, map[nameOf]*holdRec{}
	}
	c.holds[h.id], c.byKey[nameOf{h.ledger, h.row.Key}] = h, h
}

// saved is the records that a step has written.
type saved struct {
	accounts []*accountRec
	limits   []*limitRec
	periods  []*periodRec
	holds    []*holdRec
	// Accounts whose limits or newest periods are others now; with pruned, everything is.
	others []int64
	pruned bool
}

// Remember keeps what the step has read and written in the cache that it was given. Call it once that is committed.
func (s *Step) Remember() {
	c := s.cache
	if s.saved.pruned || len(c.accounts) > maxAccounts || len(c.holds) > maxHolds {
		c.Drop()
		return
	}
	for id, a := range s.state {
		if a.first >= s.Now {
			c.keepAccount(a)
		} else { // something was due, and may be no more
			c.dropAccount(s.records.accounts[id])
		}
	}
	for _, h := range s.records.holds {
		c.keepHold(h)
	}
	for _, r := range s.saved.accounts {
		if a := c.accounts[r.id]; a != nil {
			a.account = r
		}
	}
	for _, r := range s.saved.limits {
		if a := c.accounts[r.account]; a != nil {
			replace(a.limits, r, func(m *limitRec) bool { return m.id == r.id })
		}
	}
	for _, r := range s.saved.periods {
		if m := s.records.limits[r.limit]; m != nil {
			if a := c.accounts[m.account]; a != nil {
				replace(a.newest, r, func(p *periodRec) bool { return p != nil && p.id == r.id })
			}
		}
	}
	for _, h := range s.saved.holds {
		c.keepHold(h)
		for _, id := range h.ownerIDs {
			if a := c.accounts[id]; a != nil && h.row.State.Live() {
				a.first = min(a.first, h.row.ExpiresUS)
			}
		}
	}
	for _, id := range s.saved.others {
		if a := c.accounts[id]; a != nil {
			c.dropAccount(a.account)
		}
	}
}

func replace[T any](list []T, with T, where func(T) bool) {
	if i := slices.IndexFunc(list, where); i >= 0 {
		list[i] = with
	}
}
