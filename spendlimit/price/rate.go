package price

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

// Tier is the service tier that a call was served in.
type Tier string

// The tiers. Any other is [spendlimit.ErrUnpriced] (P7).
const (
	Standard Tier = ""
	Batch    Tier = "batch"
	Flex     Tier = "flex"
	Priority Tier = "priority"
)

// class is one kind of token that has a rate of its own (P4).
type class uint8

const (
	input class = iota
	cacheRead
	cacheReadAudio
	write5m
	write1h
	output
	reasoning
	audioIn
	audioOut
	imageIn
	imageOut
	videoOut
	numClasses
)

// classes names the base rate and the field of Usage of each class (P2).
var classes = [numClasses]struct{ rate, field string }{
	input:          {"input_cost_per_token", "Input"},
	cacheRead:      {"cache_read_input_token_cost", "CacheRead"},
	cacheReadAudio: {"cache_read_input_audio_token_cost", "CacheReadAudio"},
	write5m:        {"cache_creation_input_token_cost", "CacheWrite5m"},
	write1h:        {"cache_creation_input_token_cost_above_1hr", "CacheWrite1h"},
	output:         {"output_cost_per_token", "Output"},
	reasoning:      {"output_cost_per_reasoning_token", "Reasoning"},
	audioIn:        {"input_cost_per_audio_token", "AudioIn"},
	audioOut:       {"output_cost_per_audio_token", "AudioOut"},
	imageIn:        {"input_cost_per_image_token", "ImageIn"},
	imageOut:       {"output_cost_per_image_token", "ImageOut"},
	videoOut:       {"output_cost_per_video_token", "VideoOut"},
}

// canonicalName replaces the second name that the cache read rate has in the file (P2).
func canonicalName(name string) string {
	if rest, ok := strings.CutPrefix(name, "input_cost_per_token_cache_hit"); ok {
		return classes[cacheRead].rate + rest
	}
	return name
}

func classOf(base string) (class, bool) {
	for c := range classes {
		if classes[c].rate == base {
			return class(c), true
		}
	}
	return 0, false
}

// key says when a rate applies: to which class, in which tier, above how many tokens on the input side.
type key struct {
	class class
	tier  Tier
	above int64 // tokens; 0 is the base rate
}

func tierSuffix(t Tier) string {
	switch t {
	case Standard:
		return ""
	case Batch:
		return "_batches"
	}
	return "_" + string(t)
}

// maxThousands keeps N × 1000 of a name far from the end of int64.
const maxThousands = 1_000_000_000

// parseKey reads base[_above_1hr][_above_<N>k_tokens][_batches|_flex|_priority] (P2). One key has one name.
func parseKey(name string) (key, bool) {
	var k key
	for _, t := range []Tier{Batch, Flex, Priority} {
		if base, ok := strings.CutSuffix(name, tierSuffix(t)); ok {
			name, k.tier = base, t
			break
		}
	}
	if rest, ok := strings.CutSuffix(name, "k_tokens"); ok {
		i := strings.LastIndex(rest, "_above_")
		if i < 0 {
			return key{}, false
		}
		digits := rest[i+len("_above_"):]
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > maxThousands || strconv.FormatInt(n, 10) != digits {
			return key{}, false
		}
		name, k.above = rest[:i], n*1000
	}
	c, ok := classOf(name)
	k.class = c
	return k, ok
}

// String is the name that parseKey reads.
func (k key) String() string {
	name := classes[k.class].rate
	if k.above > 0 {
		name += "_above_" + strconv.FormatInt(k.above/1000, 10) + "k_tokens"
	}
	return name + tierSuffix(k.tier)
}

// Rates that are no token rates. The file nests the searches and the modifiers; their names here are joined by a point.
const (
	regionPrefix   = "regional_processing_uplift_multiplier_"
	modifierField  = "provider_specific_entry"
	modifierPrefix = modifierField + "."
	searchField    = "search_context_cost_per_query"
	searchLow      = searchField + ".search_context_size_low"
	searchMedium   = searchField + ".search_context_size_medium"
	searchHigh     = searchField + ".search_context_size_high"
)

func isMultiplier(name string) bool {
	return strings.HasPrefix(name, regionPrefix) || strings.HasPrefix(name, modifierPrefix)
}

// isUsed reports whether Cost and Bound know what the rate is for.
func isUsed(name string) bool {
	_, ok := parseKey(name)
	return ok || isMultiplier(name) || name == searchLow || name == searchMedium || name == searchHigh
}

// Bounds of P1 on a rate, tested before any arithmetic.
const (
	maxRateText = 64 // bytes
	maxPlaces   = 30
	maxRateBits = 256
)

// parseRate reads the JSON text of a number, exactly: 1.5e-07 has the value that it shows.
func parseRate(text string) (decimal.Decimal, error) {
	if len(text) > maxRateText {
		return decimal.Decimal{}, fmt.Errorf("too long: %d bytes, at most %d", len(text), maxRateText)
	}
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') || !json.Valid([]byte(text)) {
		return decimal.Decimal{}, fmt.Errorf("%q is not a number", text)
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		return decimal.Decimal{}, fmt.Errorf("%q is not a number of at most %d places", text, maxPlaces)
	}
	return d, nil
}

// checkRate tests the bounds of P1.
func checkRate(name string, d decimal.Decimal) error {
	switch exp := d.Exponent(); {
	case exp < -maxPlaces || exp > maxPlaces:
		return fmt.Errorf("exponent %d is outside -%d..%d", exp, maxPlaces, maxPlaces)
	case d.Coefficient().BitLen() > maxRateBits:
		return errors.New("too many digits")
	case d.Sign() < 0:
		return fmt.Errorf("%s is negative", d)
	case d.Sign() == 0 && isMultiplier(name):
		return errors.New("a multiplier must be above 0")
	}
	return nil
}
