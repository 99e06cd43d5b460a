//go:build lockers

// rueidislock or valkeylock. No test needs them, and they take half of the time of a build.
//
// A locker has one client of one deployment: the majority that it takes is over keys there, not over
// masters that know nothing of each other. A list of five such masters is refused: with more than one
// address the client wants a cluster. So it runs as its README sets it up, on the first node alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"
)

// When a call is given up, and where the settings are tuned, when one attempt is: with `NoLoopTracking`,
// a call whose attempt was given up is not woken by the release of what that attempt had set.
const patience = time.Second

// What both kinds of lockers can do.
type locker interface {
	WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
}

type lockerClient struct {
	locker locker
	told   answer
}

func init() {
	for _, name := range []string{"rueidislock", "valkeylock"} {
		clients[name] = func(nodes []string, tuned bool) (client, error) {
			return newLocker(name, nodes[0], tuned)
		}
	}
}

func newLocker(name, node string, tuned bool) (*lockerClient, error) {
	var next time.Duration
	settings := "one server, as its README: `KeyMajority` 1, `NoLoopTracking`"
	if tuned {
		next = patience
		settings += "; `FallbackSETPX`, `ForceSingleClient`, `TryNextAfter` 1 s"
	}
	var locker locker
	var err error
	var versions string
	if name == "valkeylock" {
		versions = "valkeylock of valkey-go " + version("github.com/valkey-io/valkey-go")
		locker, err = valkeylock.NewLocker(valkeylock.LockerOption{
			ClientOption: valkey.ClientOption{InitAddress: []string{node}, ForceSingleClient: tuned},
			KeyMajority:  1, KeyValidity: ttl, NoLoopTracking: true, FallbackSETPX: tuned,
			TryNextAfter: next,
		})
	} else {
		versions = "rueidislock of rueidis " + version("github.com/redis/rueidis")
		locker, err = rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{node}, ForceSingleClient: tuned},
			KeyMajority:  1, KeyValidity: ttl, NoLoopTracking: true, FallbackSETPX: tuned,
			TryNextAfter: next,
		})
	}
	return &lockerClient{locker, answer{"versions": versions, "settings": settings}}, err
}

func (c *lockerClient) greeting() answer { return c.told }

// The TTL belongs to the locker, not to the call.
func (c *lockerClient) lock(key string, wanted time.Duration) (lock, error) {
	if wanted != ttl {
		return nil, fmt.Errorf("its TTL is %v", ttl)
	}
	return &lockerLock{locker: c.locker, key: key}, nil
}

// A lock: its context ends where it is lost, and the call of release returns after the key is gone.
type lockerLock struct {
	locker  locker
	key     string
	ctx     context.Context
	release context.CancelFunc
}

func (l *lockerLock) try() error {
	var err error
	l.ctx, l.release, err = l.locker.TryWithContext(context.Background(), l.key)
	return err
}

// Waits for the lock, for so long. A deadline of the context would shorten the TTL.
func (l *lockerLock) take() error {
	parent, giveUp := context.WithCancel(context.Background())
	timer := time.AfterFunc(patience, giveUp)
	var err error
	l.ctx, l.release, err = l.locker.WithContext(parent, l.key)
	if err == nil && !timer.Stop() {
		l.release()
		err = context.Canceled
	}
	return err
}

func (l *lockerLock) wait() error {
	err := l.take()
	for errors.Is(err, context.Canceled) {
		err = l.take()
	}
	return err
}

func (l *lockerLock) extend() (bool, error) {
	return false, errors.New("a locker extends by itself")
}

func (l *lockerLock) unlock() bool {
	held := l.ctx.Err() == nil
	l.release()
	return held
}
