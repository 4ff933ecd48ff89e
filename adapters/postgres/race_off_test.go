//go:build !race

package postgres

const raceDetector = false
