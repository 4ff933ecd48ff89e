package spendlimit

import (
	"sync"
	"time"
)

// zones remembers the zones that a ledger has loaded. Safe for concurrent use.
type zones struct{ loaded sync.Map }

func (z *zones) load(name string) (*time.Location, error) {
	if loc, ok := z.loaded.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	z.loaded.Store(name, loc)
	return loc, nil
}
