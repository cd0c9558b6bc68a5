"""Serving: engines for asyncio, and `transept serve`, OpenAI's API and a page over them (the extra ``serve``)."""
