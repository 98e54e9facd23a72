package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func connect(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second})
}

// contender is a Mutex or an Election: both keep a key under the name, the oldest key wins.
type contender struct {
	take  func(context.Context) error
	give  func(context.Context) error
	token func() int64
	key   func() string
}

func contend(s *concurrency.Session, kind, name string) (contender, error) {
	switch kind {
	case "mutex":
		m := concurrency.NewMutex(s, name)
		return contender{m.Lock, m.Unlock, func() int64 { return revision(s.Client(), m.Key()) }, m.Key}, nil
	case "election":
		e := concurrency.NewElection(s, name)
		take := func(ctx context.Context) error { return e.Campaign(ctx, "go") }
		return contender{take, e.Resign, e.Rev, e.Key}, nil
	}
	return contender{}, fmt.Errorf("an opponent is mutex or election, not %q", kind)
}

func revision(c *clientv3.Client, key string) int64 {
	got, err := c.Get(context.Background(), key)
	if err != nil || len(got.Kvs) == 0 {
		return 0
	}
	return got.Kvs[0].CreateRevision
}

// opponent answers each line of standard input with one line: "take" with "held TOKEN" or "failed WHY", "give" with
// "given" or "failed WHY", "lost" with "lost" once its session is over.
func opponent(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("opponent takes URL, mutex or election, NAME and TTL")
	}
	ttl, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return err
	}
	who, err := contend(session, args[1], args[2])
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(answer(who, session, lines.Text()))
	}
	return session.Close()
}

func answer(who contender, session *concurrency.Session, line string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	switch line {
	case "take":
		if err := who.take(ctx); err != nil {
			return fmt.Sprint("failed ", err)
		}
		return fmt.Sprint("held ", who.token())
	case "give":
		if err := who.give(ctx); err != nil {
			return fmt.Sprint("failed ", err)
		}
		return "given"
	case "key":
		return "key " + who.key()
	case "lost":
		select {
		case <-session.Done():
			return "lost"
		case <-ctx.Done():
			return "still there"
		}
	}
	return "failed: what is " + line
}
