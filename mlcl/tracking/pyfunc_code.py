"""The code of a registered model: MLflow runs this file to load the model, so that nothing is pickled."""

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from mlcl.errors import UserError
from mlcl.training.export import load_model


class ExportedPyfunc(PythonModel):  # type: ignore[misc]
    """An exported model as a pyfunc model of MLflow, whose input is a column `text`, `image` or `vectors`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Loads the exported folder."""
        self._model = load_model(context.artifacts["model"])

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002 (MLflow's)
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Returns labels and probabilities; `params` may have `predictor` and (multi-label) `threshold`.

        Raises MlflowException for bad input: its message is what MLflow's server answers.
        """
        params = params or {}
        inputs = model_input[self._model.index.modality].tolist()
        try:
            predictions = self._model.predict(
                inputs, predictor=params.get("predictor"), threshold=params.get("threshold")
            )
        except UserError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error
        return pd.DataFrame(dict(predictions.columns), index=model_input.index)


set_model(ExportedPyfunc())
