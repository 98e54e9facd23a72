package main

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// bench measures lock and unlock, one keep-alive, and the hand-over to a waiter: median and 99th percentile in µs.
func bench(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("bench takes URL and ROUNDS")
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	var sessions [2]*concurrency.Session
	for i := range sessions {
		if sessions[i], err = concurrency.NewSession(client, concurrency.WithTTL(60)); err != nil {
			return err
		}
		defer sessions[i].Close()
	}
	var take, renew, over []time.Duration
	for range rounds {
		one, two := concurrency.NewMutex(sessions[0], "bench-go"), concurrency.NewMutex(sessions[1], "bench-go")
		start := time.Now()
		if err := one.Lock(ctx); err != nil {
			return err
		}
		take = append(take, time.Since(start))
		start = time.Now()
		if _, err := client.KeepAliveOnce(ctx, sessions[0].Lease()); err != nil {
			return err
		}
		renew = append(renew, time.Since(start))
		held := make(chan error, 1)
		go func() { held <- two.Lock(ctx) }()
		time.Sleep(20 * time.Millisecond)
		start = time.Now()
		if err := one.Unlock(ctx); err != nil {
			return err
		}
		if err := <-held; err != nil {
			return err
		}
		over = append(over, time.Since(start))
		if err := two.Unlock(ctx); err != nil {
			return err
		}
	}
	for _, row := range []struct {
		name  string
		times []time.Duration
	}{{"acquire", take}, {"renew", renew}, {"hand-over", over}} {
		sort.Slice(row.times, func(i, j int) bool { return row.times[i] < row.times[j] })
		n := len(row.times)
		fmt.Println(row.name, row.times[n/2].Microseconds(), row.times[n*99/100].Microseconds())
	}
	return nil
}
