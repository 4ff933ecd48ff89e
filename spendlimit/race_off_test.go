//go:build !race

package spendlimit_test

const raceDetector = false
