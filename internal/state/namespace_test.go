package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

func (r *replica) usage(t fataler, name string) (u Usage) {
	t.Helper()
	err := r.db.View(func(tx *bbolt.Tx) (err error) {
		_, u, err = GetNamespace(tx, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func testToken(id string, role Role, namespaces ...string) *CreateToken {
	return &CreateToken{Token{ID: id, Name: "alice", Role: role, Namespaces: namespaces, Hash: strings.Repeat("0", 64), Created: epoch}}
}

// What a namespace uses is what its jobs and data say, whatever happened to
// them, and never more than its quota.
func TestUsage(t *testing.T) {
	r := newReplica(t)
	rapid.Check(t, func(t *rapid.T) {
		r.clear(t)
		quota := Quota{Jobs: 3, Chains: 5, Draws: 100, Bytes: 50}
		if _, err := r.apply(t, epoch, &SetNamespace{Name: "lab", Quota: quota, Fresh: true}); err != nil {
			t.Fatal(err)
		}
		job := func() string { return fmt.Sprint("j", rapid.IntRange(0, 5).Draw(t, "job")) }
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			var c Command
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				c = &Submit{ID: job(), Name: "n", Spec: "s", Chains: rapid.IntRange(1, 3).Draw(t, "chains"),
					Keeps: rapid.Int64Range(0, 60).Draw(t, "keeps"), Namespace: rapid.SampledFrom([]string{"", "lab"}).Draw(t, "namespace")}
			case 2:
				c = &Act{Job: job(), Action: rapid.SampledFrom([]Action{Cancel, Delete, Pause, Resume}).Draw(t, "action")}
			case 3:
				c = &Fail{Job: job(), Message: "m"}
			case 4:
				c = &RecordBlob{Blob{SHA256: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "blob"), Size: 20,
					Namespaces: rapid.SampledFrom([][]string{nil, {"lab"}, {"default", "lab"}}).Draw(t, "namespaces")}}
			case 5:
				c = &ForgetBlob{SHA256: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "blob")}
			}
			_, err := r.apply(t, epoch, c)
			if err != nil && !errors.Is(err, ErrQuota) && !errors.Is(err, ErrUnknownJob) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrPhase) && !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			want := map[string]*Usage{"lab": {}, "default": {}}
			err = r.db.View(func(tx *bbolt.Tx) error {
				return errors.Join(Jobs(tx, func(j *Job) bool {
					u := want[j.NamespaceName()]
					u.Draws += j.Keeps
					if !j.Phase.Ended() {
						u.Jobs, u.Chains = u.Jobs+1, u.Chains+int64(j.Chains)
					}
					return true
				}), Blobs(tx, func(b *Blob) bool {
					for _, n := range b.NamespaceNames() {
						want[n].Bytes += b.Size
					}
					return true
				}))
			})
			if err != nil {
				t.Fatal(err)
			}
			for name, w := range want {
				if diff := cmp.Diff(*w, r.usage(t, name)); diff != "" {
					t.Fatalf("%s: %s", name, diff)
				}
			}
			if u := r.usage(t, "lab"); u.Jobs > quota.Jobs || u.Chains > quota.Chains || u.Draws > quota.Draws || u.Bytes > quota.Bytes {
				t.Fatalf("%+v, more than its quota", u)
			}
		}
		// A state of a version that did not count is counted when it is opened.
		before := r.dump(t)
		if err := r.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(usageBucket) }); err != nil {
			t.Fatal(err)
		}
		if err := r.db.Update(NewMachine().Init); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, r.dump(t)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestQuotaSentence(t *testing.T) {
	r := newReplica(t)
	if _, err := r.apply(t, epoch, &SetNamespace{Name: "lab", Quota: Quota{Draws: 10}, Fresh: true}); err != nil {
		t.Fatal(err)
	}
	_, err := r.apply(t, epoch, &Submit{ID: "a", Chains: 2, Keeps: 11, Namespace: "lab"})
	if want := `the namespace's quota is used up: "lab" may have 10 draws that its jobs may keep, has 0, and this needs 11`; err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
	if _, err := r.apply(t, epoch, &Submit{ID: "a", Chains: 2, Namespace: "nowhere"}); !errors.Is(err, ErrNamespace) {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}

// The same client id in two namespaces is two jobs.
func TestClientIDsOfNamespaces(t *testing.T) {
	r := newReplica(t)
	if _, err := r.apply(t, epoch, &SetNamespace{Name: "lab", Fresh: true}); err != nil {
		t.Fatal(err)
	}
	for i, namespace := range []string{"", "lab"} {
		id := fmt.Sprint("j", i)
		j, err := r.apply(t, epoch, &Submit{ID: id, Spec: "s", Chains: 1, ClientID: "c", Namespace: namespace})
		if err != nil || j.ID != id {
			t.Errorf("%q: %+v, %v", namespace, j, err)
		}
	}
}

func TestTokens(t *testing.T) {
	r := newReplica(t)
	apply := func(at time.Time, c Command) error { t.Helper(); _, err := r.apply(t, at, c); return err }
	get := func(id string) (k *Token, err error) {
		_ = r.db.View(func(tx *bbolt.Tx) error { k, err = GetToken(tx, id); return nil })
		return k, err
	}
	short := testToken("a", Viewer, "default")
	short.Expires = epoch.Add(time.Hour)
	if err := apply(epoch, short); err != nil {
		t.Fatal(err)
	}
	if err := apply(epoch, testToken("a", Admin, AllNamespaces)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an id twice: %v", err)
	}
	if err := apply(epoch, testToken("b", Admin, "nowhere")); !errors.Is(err, ErrNamespace) {
		t.Errorf("a namespace that does not exist: %v", err)
	}
	if err := apply(epoch, testToken("b", "king", "default")); !errors.Is(err, ErrMalformed) {
		t.Errorf("a role that does not exist: %v", err)
	}
	if k, err := get("a"); err != nil || !k.Live(epoch) || k.Live(short.Expires) {
		t.Errorf("%+v, %v", k, err)
	}
	for _, at := range []time.Duration{time.Minute, 2 * time.Minute} { // the second changes nothing
		if err := apply(epoch.Add(at), &RevokeToken{ID: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if k, _ := get("a"); k.Live(epoch) || !k.Revoked.Equal(epoch.Add(time.Minute)) {
		t.Errorf("revoked: %+v", k)
	}
	if err := apply(epoch, &RevokeToken{ID: "z"}); !errors.Is(err, ErrToken) {
		t.Errorf("revoking nothing: %v", err)
	}
	if err := apply(epoch.Add(forgetTokens+time.Hour), testToken("b", Admin, AllNamespaces)); err != nil {
		t.Fatal(err)
	}
	if _, err := get("a"); !errors.Is(err, ErrToken) {
		t.Errorf("a token that was revoked long ago is still there: %v", err)
	}
}

// The last token of an administrator of all namespaces stays, unless a backup that is restored says that
// it was revoked.
func TestLastAdministrator(t *testing.T) {
	r := newReplica(t)
	apply := func(at time.Time, c Command) error { t.Helper(); _, err := r.apply(t, at, c); return err }
	short := testToken("short", Admin, AllNamespaces)
	short.Expires = epoch.Add(time.Hour)
	for _, k := range []Command{testToken("a", Admin, AllNamespaces), testToken("b", Admin, "default"), testToken("c", Submitter, AllNamespaces), short} {
		if err := apply(epoch, k); err != nil {
			t.Fatal(err)
		}
	}
	late := epoch.Add(2 * time.Hour)
	if err := apply(late, &RevokeToken{ID: "a", Spare: true}); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "make another one first") {
		t.Errorf("the last one, beside one that has expired: %v", err)
	}
	for _, id := range []string{"b", "c", "short"} {
		if err := apply(late, &RevokeToken{ID: id, Spare: true}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := apply(late, testToken("d", Admin, AllNamespaces)); err != nil {
		t.Fatal(err)
	}
	if err := apply(late, &RevokeToken{ID: "a", Spare: true}); err != nil {
		t.Errorf("one of two: %v", err)
	}
	if err := apply(late, &RevokeToken{ID: "a", Spare: true}); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := apply(late, &RevokeToken{ID: "d"}); err != nil {
		t.Errorf("as a restored backup: %v", err)
	}
}

func TestDropNamespace(t *testing.T) {
	r := newReplica(t)
	apply := func(c Command) error { t.Helper(); _, err := r.apply(t, epoch, c); return err }
	drop := &DropNamespace{Name: "lab"}
	if err := apply(drop); !errors.Is(err, ErrNamespace) {
		t.Errorf("one that does not exist: %v", err)
	}
	if err := apply(&SetNamespace{Name: "lab"}); !errors.Is(err, ErrNamespace) {
		t.Errorf("changing one that does not exist: %v", err)
	}
	for _, c := range []Command{&SetNamespace{Name: "lab", Fresh: true}, testToken("a", Viewer, "lab"),
		&Submit{ID: "j", Chains: 1, Namespace: "lab"}} {
		if err := apply(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(drop); !errors.Is(err, ErrConflict) {
		t.Errorf("one with a job: %v", err)
	}
	for _, a := range []Action{Cancel, Delete} {
		if err := apply(&Act{Job: "j", Action: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(drop); !errors.Is(err, ErrConflict) {
		t.Errorf("one with a token: %v", err)
	}
	if err := apply(&RevokeToken{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := apply(drop); err != nil {
		t.Error(err)
	}
	if err := apply(&DropNamespace{Name: DefaultNamespace}); !errors.Is(err, ErrConflict) {
		t.Errorf("the default one: %v", err)
	}
}
