"""The web console: pages and a JSON API for people, over the same views and actions as `kubectl gpu`.

Nothing is readable without a sign-in; what a person sees and does is what Kubernetes' RBAC lets that person see and do.
`docs/console.md` says how to install it, `docs/adr/0017-the-console-has-no-rights-of-its-own.md` why it is built so.
"""
