"""Why something gets no card: one answer for Events, commands and the console. Pure.

`snapshot` is what an answer depends on, `explanation` what an answer is, `pod` the questions in their order.
"""
