"""Why something gets no card: one answer for Events, commands and the console. Pure.

`snapshot` is what an answer depends on, `explanation` what an answer is. For a pod that waits, `pod` asks the questions
in their order, `pool_request` those about a pool, `node_fit` those about a node; `refusal` is about pods that were not
even created, `objects` about pools, cards and nodes.
"""
