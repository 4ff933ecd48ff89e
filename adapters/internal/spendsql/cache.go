package spendsql

// Cache keeps records from one step to the next, for a database that has one writer at a time and can tell whether another one
// has written: then its user calls [Cache.Drop]. It keeps accounts with limits and live holds, as they are stored. The nil
// Cache keeps nothing. Not safe for concurrent use.
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
	if c != nil {
		clear(c.accounts)
		clear(c.byName)
		clear(c.holds)
		clear(c.byKey)
	}
}

func (c *Cache) account(id int64) *accountState {
	if c == nil {
		return nil
	}
	return c.accounts[id]
}

func (c *Cache) accountNamed(n nameOf) *accountState {
	if c == nil {
		return nil
	}
	return c.byName[n]
}

func (c *Cache) hold(id int64) *holdRec {
	if c == nil {
		return nil
	}
	return c.holds[id]
}

func (c *Cache) holdNamed(n nameOf) *holdRec {
	if c == nil {
		return nil
	}
	return c.byKey[n]
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

// Remember keeps what the step has read and written. Call it once that is committed.
func (s *Step) Remember(c *Cache) error {
	if c == nil || s.saved.pruned || len(c.accounts) > maxAccounts || len(c.holds) > maxHolds {
		c.Drop()
		return nil
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
		if a := c.account(r.id); a != nil {
			a.account = r
		}
	}
	for _, r := range s.saved.limits {
		if err := c.replaceLimit(r); err != nil {
			return err
		}
	}
	for _, r := range s.saved.periods {
		if err := c.replacePeriod(r, s.records.limits[r.limit]); err != nil {
			return err
		}
	}
	for _, h := range s.saved.holds {
		kept := new(holdRec)
		if err := keep(kept, h); err != nil {
			return err
		}
		c.keepHold(kept)
		for _, id := range kept.ownerIDs {
			if a := c.account(id); a != nil && kept.row.State.Live() {
				a.first = min(a.first, kept.row.ExpiresUS)
			}
		}
	}
	for _, id := range s.saved.others {
		if a := c.account(id); a != nil {
			c.dropAccount(a.account)
		}
	}
	return nil
}

func (c *Cache) replaceLimit(r *limitRec) error {
	a := c.account(r.account)
	if a == nil {
		return nil
	}
	for i, m := range a.limits {
		if m.id == r.id {
			a.limits[i] = new(limitRec)
			return keep(a.limits[i], r)
		}
	}
	return nil
}

func (c *Cache) replacePeriod(r *periodRec, of *limitRec) error {
	if of == nil {
		return nil
	}
	a := c.account(of.account)
	if a == nil {
		return nil
	}
	for i, p := range a.newest {
		if p != nil && p.id == r.id {
			a.newest[i] = new(periodRec)
			return keep(a.newest[i], r)
		}
	}
	return nil
}

// record is what can be taken apart into columns.
type record interface {
	fields() []any
	unpack() error
}

// keep makes to what is read back after from was written. A row that was a step's has marks and links of that step: only its
// columns are taken.
func keep(to, from record) error {
	columns := from.fields()
	for i, field := range to.fields() {
		assign(field, columns[i])
	}
	return to.unpack()
}

// assign copies what a field points at.
func assign(to, from any) {
	switch to := to.(type) {
	case *int64:
		*to = *from.(*int64)
	case *string:
		*to = *from.(*string)
	case *bool:
		*to = *from.(*bool)
	case *uint8:
		*to = *from.(*uint8)
	case *int:
		*to = *from.(*int)
	case **int64:
		*to = nil
		if n := *from.(**int64); n != nil {
			v := *n
			*to = &v
		}
	}
}
