"""The HTTP API: OpenAI's wire format where it has one. `app.build_app` puts it together; one module an endpoint."""
