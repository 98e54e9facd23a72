package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// member is what a test says about one etcd.
type member struct {
	Name, Folder, Client, Peer, Cluster, State string
	Quota                                      int64
	Heartbeat, Election                        uint
	Cert, Key, CA                              string
	Verify                                     bool
}

func etcd(args []string) error {
	var m member
	if len(args) != 1 {
		return fmt.Errorf("etcd takes one JSON object")
	}
	if err := json.Unmarshal([]byte(args[0]), &m); err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster, c.ClusterState = m.Name, m.Folder, m.Cluster, m.State
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.QuotaBackendBytes, c.LogLevel = m.Quota, "warn"
	c.LogOutputs = []string{filepath.Join(m.Folder, "..", m.Name+".log")}
	if m.Heartbeat > 0 {
		c.TickMs, c.ElectionMs = m.Heartbeat, m.Election
	}
	if m.Cert != "" {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: m.Cert, KeyFile: m.Key, TrustedCAFile: m.CA, ClientCertAuth: m.Verify}
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-e.Err():
		return err
	case <-time.After(60 * time.Second):
		return fmt.Errorf("not ready after 60 s")
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		close(ended)
	}()
	select {
	case err := <-e.Err():
		return err
	case <-ended:
		return nil
	}
}
