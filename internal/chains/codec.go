package chains

import (
	"encoding/json"
	"fmt"
)

// Encode returns an event in the form in which it travels and is kept.
func (e Event) Encode() ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding an event: %w", err)
	}
	return text, nil
}

// DecodeEvent reads what Encode wrote. What cannot be read is ErrShape.
func DecodeEvent(text []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrShape, err)
	}
	return e, nil
}
