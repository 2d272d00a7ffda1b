"""The objective, the loop that optimises it, and what a trained encoder is worth. No Ray, no MLflow here."""
