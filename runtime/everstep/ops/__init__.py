"""Operations: the command line, and what runs beside graphs. Nothing below imports it."""
