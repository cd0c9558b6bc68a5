"""Live transcription for clients of OpenAI's Realtime protocol: sessions, their settings, their audio and events."""
