"""How people prove who they are: by an identity provider, by a token, or by a link on their own machine."""
