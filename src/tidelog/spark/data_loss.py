"""What happens when records that should be read are not there: `failOnDataLoss`.

true     DataLoss, and the query fails before anything of the batch is read
false    a warning in the log, and the query goes on with what there is
"""

from __future__ import annotations

import logging
from typing import NamedTuple

logger = logging.getLogger(__name__)


class DataLoss(RuntimeError):
    """Records may have been missed and failOnDataLoss is true."""


class DataLossPolicy(NamedTuple):
    fail: bool

    def report(self, message: str) -> None:
        if self.fail:
            raise DataLoss(
                f"{message}. The records were deleted by retention, or their topic was deleted or "
                f'made anew, before they were read. Set the option "failOnDataLoss" to "false" to '
                f"go on without them."
            )
        logger.warning(
            '%s. Some records may have been missed; the option "failOnDataLoss" is "false".',
            message,
        )
