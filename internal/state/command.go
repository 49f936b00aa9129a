package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Command is a change of the state: a struct of this package whose name in the
// log is in commands.
type Command interface {
	// apply makes the change and returns the job that it made or changed, nil if
	// there is none. After an error the transaction is rolled back.
	apply(*transaction) (*Job, error)
}

// commands makes an empty command of each kind, by the name that it has in the
// log.
var commands = map[string]func() Command{
	"submit": func() Command { return new(Submit) },
	"loaded": func() Command { return new(Loaded) },
	"report": func() Command { return new(Report) },
	"decide": func() Command { return new(Decide) },
	"place":  func() Command { return new(Place) },
	"act":    func() Command { return new(Act) },
	"extend": func() Command { return new(Extend) },
	"fail":   func() Command { return new(Fail) },
	"tick":   func() Command { return new(Tick) },
	"remark": func() Command { return new(Remark) },

	"annotate": func() Command { return new(Annotate) },
	"diagnose": func() Command { return new(Diagnose) },
	"sent":     func() Command { return new(Sent) },

	"blob": func() Command { return new(RecordBlob) },
	"drop": func() Command { return new(ForgetBlob) },

	"latent":       func() Command { return new(RecordLatent) },
	"drop_latents": func() Command { return new(DropLatents) },

	"token":          func() Command { return new(CreateToken) },
	"revoke":         func() Command { return new(RevokeToken) },
	"set_namespace":  func() Command { return new(SetNamespace) },
	"drop_namespace": func() Command { return new(DropNamespace) },
	"node_key":       func() Command { return new(SetNodeKey) },
}

// names are the names of the commands, by their types.
var names = func() map[reflect.Type]string {
	out := map[reflect.Type]string{}
	for name, make := range commands {
		out[reflect.TypeOf(make())] = name
	}
	return out
}()

// Errors that Apply returns. A command that is refused changes nothing.
var (
	// ErrUnknownJob is returned for a job that does not exist.
	ErrUnknownJob = errors.New("there is no such job")
	// ErrUnknownBlob is returned for a data set that does not exist.
	ErrUnknownBlob = errors.New("there is no such data set")
	// ErrFenced is returned for what a driver says that was replaced.
	ErrFenced = errors.New("another driver has taken over the chain")
	// ErrPhase is returned for an action that the job's phase does not allow.
	ErrPhase = errors.New("the job's state does not allow it")
	// ErrConflict is returned for what contradicts something that is there.
	ErrConflict = errors.New("it conflicts with what there is")
	// ErrDamaged is returned for a job whose events cannot be read.
	ErrDamaged = errors.New("the events of the job cannot be read")
	// ErrMalformed is returned for a command that makes no sense.
	ErrMalformed = errors.New("the command is malformed")
)

// conflict is an ErrConflict that says with what.
type conflict string

func conflictf(format string, args ...any) error { return conflict(fmt.Sprintf(format, args...)) }

func (c conflict) Error() string        { return string(c) }
func (c conflict) Is(target error) bool { return target == ErrConflict }

// header is what the log holds of every command. In its JSON the command
// follows, under its name.
type header struct {
	Format uint64    `json:"format,omitempty"` // first, for FormatOf; see there
	Time   time.Time `json:"time"`
}

// Encode returns a command as the log holds it, given at time t.
func Encode(t time.Time, c Command) ([]byte, error) {
	h := header{Time: t}
	if newer, ok := c.(interface{ format() uint64 }); ok {
		h.Format = newer.format()
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	name, ok := names[reflect.TypeOf(c)]
	if !ok {
		panic(fmt.Sprintf("state: %T is not among the commands", c))
	}
	return fmt.Appendf(head[:len(head)-1], `,%q:%s}`, name, body), nil
}

// decode reads what Encode wrote.
func decode(text []byte) (time.Time, Command, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return time.Time{}, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	var h header
	if err := errors.Join(take(fields, "format", &h.Format), take(fields, "time", &h.Time)); err != nil {
		return time.Time{}, nil, err
	}
	if len(fields) != 1 {
		return time.Time{}, nil, fmt.Errorf("%w: %d changes in one", ErrMalformed, len(fields))
	}
	for name := range fields {
		if make := commands[name]; make != nil {
			c := make()
			return h.Time, c, take(fields, name, c)
		}
	}
	return time.Time{}, nil, fmt.Errorf("%w: of a kind that this version does not know", ErrMalformed)
}

// take reads a field, if it is there, and removes it from the others.
func take(fields map[string]json.RawMessage, name string, v any) error {
	text, ok := fields[name]
	if !ok {
		return nil
	}
	delete(fields, name)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
