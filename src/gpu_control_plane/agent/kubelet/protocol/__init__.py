"""The kubelet's two gRPC protocols: our own `.proto` files, and the messages that `make generate` makes of them.

Only messages are generated. The few methods are named by hand where they are served or called, which needs less code
than the generated services and is typed.
"""
