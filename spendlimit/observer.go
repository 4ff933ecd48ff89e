package spendlimit

import "time"

// Event tells an Observer about something that was committed.
type Event struct {
	Kind     EventKind
	At       time.Time
	Account  string
	Limit    string
	Period   string // label
	Hold     string
	Amount   Amount // overrun: how much; lapsed: the room that the hold still had
	Assumed  Amount // lapsed: how much of it counts as spent
	Crossing Crossing
	Anomaly  Anomaly
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	EventCrossed EventKind = iota + 1 // a threshold was reached
	EventOverrun                      // a true cost found no room
	EventLapsed                       // a hold ran out of time
	EventAnomaly                      // a cost looks wrong
)
