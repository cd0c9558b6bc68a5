"""``/docs``: the API's description, shown by Swagger UI from local files, so it works without a network.

The files come from the package `fastapi_offline`; nothing else of it is used. URLs in the page are relative, so it also
works under a proxy's path.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

from transept.serving.errors import ApiError

SWAGGER = Path(str(files("fastapi_offline"))) / "static"
FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
HEADERS = {
    # Swagger UI sets style attributes, draws its icons from data: URLs, and runs only its own scripts.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transept: the API</title>
<link rel="icon" href="web/icon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body>
<div id="swagger-ui"></div>
</body>
</html>
"""
START = """// Form fields begin with their defaults, or empty. Without this, Swagger UI fills them with samples.
const beginsWithDefaults = ({ fn: { getSampleSchema } }) => ({
  fn: {
    getSampleSchema: (schema, type, ...options) => {
      if (type !== false) return getSampleSchema(schema, type, ...options);
      const { default: value, type: kind } = schema.toJS();
      return value ?? (kind === "array" ? [] : "");
    },
  },
});
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  plugins: [beginsWithDefaults],
  deepLinking: true,
  validatorUrl: null,
});
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> Response:
    """Return the page."""
    return HTMLResponse(PAGE, headers=HEADERS)


@router.get("/docs/start.js")
async def start() -> Response:
    """Return the script that starts Swagger UI."""
    return Response(START, media_type="text/javascript", headers=HEADERS)


@router.get("/docs/{name}")
async def file(request: Request, name: str) -> Response:
    """Return a file of Swagger UI."""
    if name not in FILES:
        raise ApiError(404, f"there is no {request.url.path}; see /docs", code="not_found")
    return FileResponse(SWAGGER / name, media_type=FILES[name], headers=HEADERS)
