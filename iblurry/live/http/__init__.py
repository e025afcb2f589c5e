"""The service over HTTP: endpoints behind a guard, pictures in, events and metrics out."""
