"""Authentication: development tokens, JWTs by JWKS, API keys."""
