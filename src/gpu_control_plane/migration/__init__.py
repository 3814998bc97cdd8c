"""What migrations from NVIDIA's operator and from KubeRay's share: finding that operator, switching to ours and back.

`deployment` says how an operator was started, `other_operator` finds it, `operator_switch` alone writes. `key_mapping`
has the words for where a Helm value goes. Nothing here runs in a controller.
"""
