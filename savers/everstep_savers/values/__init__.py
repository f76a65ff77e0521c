"""How values of each type are kept, for the codec: one module for each family of types."""
