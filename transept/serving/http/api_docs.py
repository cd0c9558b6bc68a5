"""``/docs``: the API's description as a page of Swagger UI, with local files, so it works without a network.

The files come from the package `fastapi_offline`; nothing else of it is used. URLs in the page are relative, so it also
works under a proxy's path.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

from transept.serving.errors import ApiError

PACKAGE = "fastapi_offline"
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
{links}
</head>
<body>
<div id="swagger-ui">{text}</div>
</body>
</html>
"""
LINKS = """<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>"""
START = """// Fields of a form begin with their defaults, and empty without one; Swagger UI would send samples of them.
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
WITHOUT = """<p>The description of the API is <a href="openapi.json">openapi.json</a>.
This server lacks the package that shows it as a page: <code>pip install fastapi-offline</code> installs it.</p>"""

router = APIRouter(include_in_schema=False)


def swagger_files() -> Path | None:
    """Return the folder with Swagger UI's files; None if they are not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "static"
    return folder if all((folder / name).is_file() for name in FILES) else None


@router.get("/docs")
async def docs() -> Response:
    """The page."""
    there = swagger_files() is not None
    page = PAGE.format(links=LINKS if there else "", text="" if there else WITHOUT)
    return HTMLResponse(page, headers=HEADERS)


@router.get("/docs/start.js")
async def start() -> Response:
    """The script that shows the description."""
    return Response(START, media_type="text/javascript", headers=HEADERS)


@router.get("/docs/{name}")
async def file(request: Request, name: str) -> Response:
    """One of Swagger UI's files."""
    folder = swagger_files()
    if folder is None or name not in FILES:
        raise ApiError(404, f"there is no {request.url.path}; see /docs", code="not_found")
    return FileResponse(folder / name, media_type=FILES[name], headers=HEADERS)
