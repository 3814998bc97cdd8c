package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The kubelet runs on Linux alone, so other platforms are spared building it.
func init() {
	programs["kubelet"] = func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
}
