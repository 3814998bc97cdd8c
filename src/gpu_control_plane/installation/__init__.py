"""Commands that change a cluster for a release: CRDs installed, what the chart declares, what is left taken away."""
