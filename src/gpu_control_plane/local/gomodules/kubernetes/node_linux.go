package main

import (
	"context"

	"github.com/spf13/cobra"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// What a node runs, runs on Linux alone, so other platforms are spared building it.
func init() {
	programs["kube-proxy"] = proxy.NewProxyCommand
	programs["kubelet"] = func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
}
