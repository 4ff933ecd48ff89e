package sqlrow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Lists that are rarely there are JSON in columns of text, and the empty text when they are empty.

// Encode makes the text of a value.
func Encode(text *string, v any) error {
	out, err := json.Marshal(v)
	if *text = string(out); *text == "{}" {
		*text = ""
	}
	return err
}

// EncodeList makes the text of a list.
func EncodeList[T any](text *string, list []T) error {
	if len(list) == 0 {
		*text = ""
		return nil
	}
	return Encode(text, list)
}

// Decode reads what Encode has made.
func Decode(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// AppendIDs appends a JSON array of numbers. It is for what every row has, and so is ParseIDs.
func AppendIDs(text []byte, ids []int64) []byte {
	text = append(text, '[')
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, id, 10)
	}
	return append(text, ']')
}

// ParseIDs reads what AppendIDs has made.
func ParseIDs(text string) ([]int64, error) {
	inner, begins := strings.CutPrefix(text, "[")
	inner, ends := strings.CutSuffix(inner, "]")
	if !begins || !ends {
		return nil, fmt.Errorf("%q where a list of ids should be", text)
	}
	if inner == "" {
		return nil, nil
	}
	ids := make([]int64, 0, 4)
	for part := range strings.SplitSeq(inner, ",") {
		id, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
